"""onehop: direct messages, honest numbers."""
