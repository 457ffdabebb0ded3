"""Generated parts of the documentation: written from the tables, checked in the gate.

Markdown with `<!-- generated: NAME -->` ... `<!-- end: NAME -->`
    -> `blocks.replace_blocks(text, renderers)` -> the same Markdown with fresh tables
"""
