"""`python -m zkconsumer.cli`, the same as the command `zkconsumer`."""

from zkconsumer.cli.program import main

main()
