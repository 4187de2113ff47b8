"""What the fit minimises: masks, targets and weights of each kind of drafter."""
