"""`python -m heshare.ops.worker_program`."""

import sys

from heshare.ops.worker_program.worker_main import main

sys.exit(main(sys.argv[1:]))
