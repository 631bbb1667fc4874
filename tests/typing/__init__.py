"""What both type checkers accept and what they reject, written against ordinary generated stubs."""
