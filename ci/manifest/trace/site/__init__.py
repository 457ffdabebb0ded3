"""A folder for `PYTHONPATH`: its `sitecustomize` starts recording in child interpreters."""
