"""Build the distributions the way a user's installer does, and try what came out.

source tree -> sdist -> wheel (from the sdist, isolated) -> contents, metadata, auditwheel
            -> pure wheel (native build off)             -> contents
wheel -> clean environment -> the stage's tests, outside the source tree -> report
"""
