"""From rows back to what the model computed.

index rows + run records -> `completeness.find_missing` -> lines (empty: complete)
rows -> `assemble` (shards merged, ranges placed, left-padded) -> tensors -> `Internals`
"""
