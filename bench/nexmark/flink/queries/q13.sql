-- q13: a value for each bid from a file. Published, it is looked up by a source that Flink 2 no longer has; here, by a function.
CREATE TABLE results (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, `value` STRING) WITH (${APPEND});

INSERT INTO results
SELECT auction, bidder, price, `dateTime`, `value`
FROM (SELECT auction, bidder, price, `dateTime`, side_input(MOD(auction, 10000)) AS `value` FROM bid)
WHERE `value` IS NOT NULL;
