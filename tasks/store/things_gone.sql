-- Grain: one row a thing that leaves since in one of its groups no row stays; added to `things_gone`
INSERT INTO things_gone
WITH losing AS (
    SELECT DISTINCT kind, id, "group"
    FROM refs
    SEMI JOIN rows_gone USING ("table", row)
    ANTI JOIN things_gone USING (kind, id)
    WHERE "group" IS NOT NULL
),

staying AS (
    SELECT DISTINCT kind, id, "group"
    FROM refs
    SEMI JOIN losing USING (kind, id, "group")
    ANTI JOIN rows_gone USING ("table", row)
)

SELECT DISTINCT kind, id FROM losing ANTI JOIN staying USING (kind, id, "group")
