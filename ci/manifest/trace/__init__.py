"""The recording side, inside the measured processes: standard library only.

`start` puts the pieces in place: a recorder of executed code, wrappers on the
import functions, an audit hook for files and libraries, bookkeeping of
children. Every process appends to a journal of its own; `ci.manifest.build`
reads them. The package loads itself in children under another name (see
`site/sitecustomize.py`), so it imports its siblings relatively and nothing else
of the project.
"""
