"""Registration checks, descriptor pools and compiled bindings."""
