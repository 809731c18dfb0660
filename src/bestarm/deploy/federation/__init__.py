"""A federation on real machines: one server, many clients, NATS JetStream between them.

The machines of ``bestarm.methods`` run unchanged. The journals are authoritative and the streams are only
mailboxes: after a crash, a restart replays the journal and sends the same bytes again. Every message is
signed by its sender.

``files`` handles the folders. ``desk`` and ``site`` are the folds of server and client; ``server`` and
``client`` drive them. ``broker`` runs the NATS server, ``wire`` connects to it, ``streams`` creates its
mailboxes. ``metrics`` serves the monitoring pages, ``verification`` checks a server's folder, and ``demo``
runs a whole federation on one computer. Requires ``bestarm[federation]``.
"""
