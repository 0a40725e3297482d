-- q2: bids of some auctions.
CREATE TABLE results (auction BIGINT, price BIGINT) WITH (${APPEND});

INSERT INTO results SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
