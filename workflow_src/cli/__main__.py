"""`python -m workflow_src.cli`: the command without an installed script."""

from workflow_src.cli import main

if __name__ == "__main__":
    main()
