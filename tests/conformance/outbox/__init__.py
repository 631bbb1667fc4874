"""The outbox and its relay on every database, with every kind of session; and every publisher."""
