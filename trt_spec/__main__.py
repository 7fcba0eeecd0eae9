"""``python -m trt_spec`` is the ``trtspec`` command."""

from trt_spec.cli.main import main

if __name__ == "__main__":
    main()
