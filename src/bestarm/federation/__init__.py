"""A federation on real machines: one server, many clients, NATS JetStream between them.

The machines of ``bestarm.protocol`` run unchanged. Journals are the truth and streams are mailboxes: whatever
dies, a restart replays the journal and sends the same bytes again. Every message is signed by who says it.

``files`` knows the folders, ``broker`` runs the NATS server, ``wire`` connects to it, ``server`` and
``client`` drive the machines, ``demo`` shows all of it on one computer. Needs ``bestarm[federation]``.
"""
