-- q4: the average closing price of each category.
CREATE TABLE results (category BIGINT, final BIGINT, PRIMARY KEY (category) NOT ENFORCED) WITH (${UPSERT});

INSERT INTO results
SELECT Q.category, AVG(Q.final)
FROM (
    SELECT MAX(B.price) AS final, A.category
    FROM auction A, bid B
    WHERE A.id = B.auction AND B.ts BETWEEN A.ts AND CAST(TO_TIMESTAMP_LTZ(A.expires, 3) AS TIMESTAMP(3))
    GROUP BY A.id, A.category
) Q
GROUP BY Q.category;
