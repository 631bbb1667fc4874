"""The reference shop: five services that take part in the order saga, each its own proto, process and database."""
