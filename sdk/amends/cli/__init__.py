"""The command line `amends`; only this entrance may be imported where the extra is missing."""
