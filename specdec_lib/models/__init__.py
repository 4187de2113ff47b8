"""Things that answer `(tokens, draft) -> Scores`: real models, tables known exactly, recordings."""
