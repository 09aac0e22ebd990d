"""The flow classifier: rules on header fields, and actions on the frames that match them."""
