"""A bank that takes part in transfers: one program, run once for each bank, each with accounts of its own."""
