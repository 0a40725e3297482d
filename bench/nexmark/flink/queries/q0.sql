-- q0: pass through.
CREATE TABLE results (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, extra STRING) WITH (${APPEND});

INSERT INTO results SELECT auction, bidder, price, `dateTime`, extra FROM bid;
