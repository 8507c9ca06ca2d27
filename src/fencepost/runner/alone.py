"""The script that a supervisor is (`python -I -S alone.py FOLDER`): this package by itself, without what is installed around it."""

import sys
import types

if __name__ == "__main__":
    # The public face of the package imports libraries, which are not to be had here, nor to be waited for: an empty one stands for it.
    face = types.ModuleType("fencepost")
    face.__path__ = [__file__.rpartition("/runner/")[0]]
    sys.modules["fencepost"] = face

    from fencepost.runner.supervisor import main

    main(sys.argv[1])
