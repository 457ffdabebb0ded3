"""Where to look: the hook table, selections of it, and the model families that know the places."""
