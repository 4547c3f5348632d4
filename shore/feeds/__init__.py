"""The customers' feeds: what each customer may read, in a log of its own, each record once.

In: tables ``readings``, ``alerts``, ``custody_entries``, ``events``, ``bookings``, ``sites`` and ``owners``. Out: the
rows that are due, which ``shore.sink`` appends to logs ``feeds.<customer>`` at the shore's site. Open ``entitlement``
first; ``look`` decides which part of the feeds a batch compares.

**What is in a feed.** The readings of a container whose device time is in one of the customer's bookings
(``valid_from`` inclusive, ``valid_to`` exclusive), and its alerts and custody grants by the time of the event. A
record's value is that of the log, its key is the container, its header ``origin`` is ``<log>@<offset>``. The stream in
``origin`` tells what kind of record it is. ``shore.tables.valid_bookings`` defines when bookings and their corrections
hold.

**What is taken back.** When a corrected booking no longer covers a delivered record, a record with the header
``retracts: <log>@<offset>`` and the same key follows. Its value says where in the feed the retracted record stands
(``fairlead.records.booking``). A record that belongs to the customer again later is delivered again.

**In order and once.** Records of one container log enter in the log's order. A feed must have what the tables entitle
the customer to; due is the difference to what table ``feeds`` says the customer has. Before the first append, shore
reads the feed's log from where table ``feeds`` ends, so it knows what an interrupted run appended. The append itself is
a compare-and-swap on the log's end (``shore.sink.exactly_once``). A batch can therefore be repeated any number of
times.

**Bookings that come late.** A batch compares new records under the bookings known now, and all records of containers
whose bookings changed. So it does not matter which came first. A booking that is widened backwards adds older readings
after newer ones: nothing is missing, and the offsets in ``origin`` show the order.
"""
