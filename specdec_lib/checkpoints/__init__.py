"""Our trained drafters on disk: storage, cards, compatibility with a target."""
