"""The chart and the Kubernetes objects of deploy/ agree with schemas, with the product, and with each other."""
