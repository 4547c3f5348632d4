"""The customers' feeds: what each customer may read, in a log of its own, each record once.

In: tables ``readings``, ``alerts``, ``custody_entries``, ``events`` and ``bookings``. Out: rows that are due, which
``shore.sink`` appends to logs ``feeds.<customer>`` at the shore's site. Open ``entitlement`` first; ``look`` says what
a batch makes be compared.

**What is in a feed.** The readings of a container whose device time is in one of the customer's bookings
(``valid_from`` inclusive, ``valid_to`` exclusive), and its alerts and the ledger's grants of its custody by the time of
the event; the record's value as in the log, its key the container, its header ``origin`` naming ``<log>@<offset>``.
What a record is can be told by the stream in ``origin``. ``shore.tables.valid_bookings`` says what bookings
and their corrections come to.

**What is taken back.** A booking corrected so that it does not cover what was delivered has each such record followed
by one with the header ``retracts: <log>@<offset>`` and the same key, whose value says where in the feed the record
stands (``fairlead.records.booking``). What belongs to the customer again later is delivered again.

**In order and once.** Records of one container log enter in the log's order. What belongs in a feed is what the tables
entitle the customer to; what is due is the difference to what table ``feeds`` says the customer has. Before the first
append the feed's log is read from where table ``feeds`` ends, so that whatever an earlier, interrupted run did append
is known; the append itself is a compare-and-swap on the log's end (``shore.sink.exactly_once``). A batch can therefore
be repeated any number of times.

**Bookings that come late.** A batch compares two things: new records, under the bookings known now; and all records of
containers whose bookings changed. So it does not matter which came first. A booking that is
widened backwards adds older readings after newer ones: nothing is missing, and their offsets in ``origin`` tell.
"""
