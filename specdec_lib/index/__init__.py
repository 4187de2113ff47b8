"""What has been read, for when and what alike; every index answers for any session."""
