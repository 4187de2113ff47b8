"""Indexes of the text of a decode, shared by when and what; every index answers for any session."""
