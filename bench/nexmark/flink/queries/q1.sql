-- q1: prices in euros.
CREATE TABLE results (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` BIGINT, extra STRING) WITH (${APPEND});

INSERT INTO results SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid;
