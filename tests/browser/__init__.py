"""Pages as a browser shows them: run by `make browser`, outside of `make test`."""
