-- q12: bids of each bidder in 10 s of the clock.
CREATE TABLE results (bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)) WITH (${APPEND});

CREATE VIEW clocked AS SELECT *, PROCTIME() AS p_time FROM bid;

INSERT INTO results
SELECT bidder, count(*) AS bid_count, window_start, window_end
FROM TABLE(TUMBLE(TABLE clocked, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
