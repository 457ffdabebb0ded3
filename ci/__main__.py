"""Run the command line as `python -m ci`."""

import sys

from ci.cli import main

if __name__ == "__main__":
    sys.exit(main())
