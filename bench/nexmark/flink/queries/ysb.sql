-- ysb: views of each campaign in 10 s. The campaign of an ad is looked up by a function that holds the table of ads in memory, as the
-- published programs hold what they have looked up in Redis. A join with the topic of ads would cost Flink more: a regular one keeps each
-- view for good, and a versioned one keeps it until the watermark; Flink 2 has no join by processing time with a topic.
CREATE TABLE adevent (
    ad_id STRING,
    event_type STRING,
    event_time BIGINT,
    ts AS CAST(TO_TIMESTAMP_LTZ(event_time, 3) AS TIMESTAMP(3)),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH (${ADEVENT});

CREATE TABLE results (campaign_id STRING, `views` BIGINT, window_end TIMESTAMP(3)) WITH (${APPEND});

CREATE VIEW seen AS
SELECT campaign_id, ts
FROM (SELECT side_input(ad_id) AS campaign_id, ts FROM adevent WHERE event_type = 'view')
WHERE campaign_id IS NOT NULL;

INSERT INTO results
SELECT campaign_id, count(*) AS `views`, window_end
FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY campaign_id, window_start, window_end;
