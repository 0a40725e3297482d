-- q9: the winning bid of each auction.
CREATE TABLE results (
    id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` BIGINT, expires BIGINT, seller BIGINT,
    category BIGINT, extra STRING, auction BIGINT, bidder BIGINT, price BIGINT, bid_dateTime BIGINT, bid_extra STRING,
    PRIMARY KEY (id) NOT ENFORCED
) WITH (${UPSERT});

INSERT INTO results
SELECT
    id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
    auction, bidder, price, bid_dateTime, bid_extra
FROM (
    SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime, B.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.ts ASC) AS rownum
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.ts BETWEEN A.ts AND CAST(TO_TIMESTAMP_LTZ(A.expires, 3) AS TIMESTAMP(3))
)
WHERE rownum <= 1;
