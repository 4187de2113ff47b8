"""Making recordings of decodes, and replaying methods on them without a model."""
