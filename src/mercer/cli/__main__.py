"""``python -m mercer.cli``."""

import sys

from mercer.cli.commands import main

sys.exit(main())
