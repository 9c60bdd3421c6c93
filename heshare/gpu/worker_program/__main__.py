"""`python -m heshare.gpu.worker_program`."""

import sys

from heshare.gpu.worker_program.worker_main import main

sys.exit(main(sys.argv[1:]))
