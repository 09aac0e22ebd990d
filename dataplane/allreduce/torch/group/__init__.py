"""The backend `millrace` of torch.distributed."""
