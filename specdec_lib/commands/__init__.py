"""The bodies of the `specdec` commands, one file each."""
