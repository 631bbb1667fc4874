"""The saga coordinator: drives sagas from a durable ledger and calls the participants."""
