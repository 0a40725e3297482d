-- q10: each bid with its day and minute. Published, these choose the file; here the rows go to a topic.
CREATE TABLE results (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, extra STRING, dt STRING, hm STRING) WITH (${APPEND});

INSERT INTO results
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(ts, 'yyyy-MM-dd'), DATE_FORMAT(ts, 'HH:mm') FROM bid;
