-- q14: prices in a range, the time of day, and a count of letters.
CREATE TABLE results (
    auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), bidTimeType STRING, `dateTime` BIGINT, extra STRING, c_counts BIGINT
) WITH (${APPEND});

INSERT INTO results
SELECT
    auction,
    bidder,
    0.908 * price AS price,
    CASE
        WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime'
        WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    `dateTime`,
    extra,
    count_char(extra, 'c') AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
