-- q7: the highest bid of each 10 s.
CREATE TABLE results (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, extra STRING, window_end TIMESTAMP(3)) WITH (${APPEND});

INSERT INTO results
SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra, B1.window_end
FROM bid B
JOIN (
    SELECT MAX(price) AS maxprice, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice
WHERE B.ts BETWEEN B1.window_end - INTERVAL '10' SECOND AND B1.window_end;
