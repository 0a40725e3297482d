-- The tables of all queries. Times are milliseconds in JSON; `ts` is the event time, with the published watermark.
CREATE TABLE bid (
    auction BIGINT,
    bidder BIGINT,
    price BIGINT,
    channel STRING,
    url STRING,
    `dateTime` BIGINT,
    extra STRING,
    ts AS CAST(TO_TIMESTAMP_LTZ(`dateTime`, 3) AS TIMESTAMP(3)),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH (${BID});

CREATE TABLE auction (
    id BIGINT,
    itemName STRING,
    description STRING,
    initialBid BIGINT,
    reserve BIGINT,
    `dateTime` BIGINT,
    expires BIGINT,
    seller BIGINT,
    category BIGINT,
    extra STRING,
    ts AS CAST(TO_TIMESTAMP_LTZ(`dateTime`, 3) AS TIMESTAMP(3)),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH (${AUCTION});

CREATE TABLE person (
    id BIGINT,
    name STRING,
    emailAddress STRING,
    creditCard STRING,
    city STRING,
    state STRING,
    `dateTime` BIGINT,
    extra STRING,
    ts AS CAST(TO_TIMESTAMP_LTZ(`dateTime`, 3) AS TIMESTAMP(3)),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH (${PERSON});
