"""What drafters are trained on: prompts, the target's answers, features, batches, labels."""
