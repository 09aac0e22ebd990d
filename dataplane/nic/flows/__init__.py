"""The flow classifier: rules on header fields, and what becomes of the frames that match them."""
