"""`python -m heshare.devices.runner`."""

import sys

from heshare.devices.runner.main import main

sys.exit(main(sys.argv[1:]))
