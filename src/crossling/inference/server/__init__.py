"""Models behind HTTP: requests of many clients share batches, within limits, with a page to try them.

``batching`` queues inputs for a model, ``served`` is a model with its queue, ``schema`` what requests and answers hold,
``app`` the routes, ``guard`` what every request passes, ``process`` the socket and the shutdown.
"""
