// proves: every status has a text of its own, and every other number is called unknown
#include "qos.h"
#include "check.h"

int main(void)
{
    int a, b;
    check_begin("unit/qos_status");
    for (a = 0; a >= QOS_STATUS_LAST; a--) {
        CHECK(qos_strerror(a) != NULL && qos_strerror(a)[0] != 0);
        CHECK(strcmp(qos_strerror(a), "unknown status") != 0);
        for (b = 0; b > a; b--)
            CHECK(strcmp(qos_strerror(a), qos_strerror(b)) != 0);
    }
    CHECK(strcmp(qos_strerror(QOS_STATUS_LAST - 1), "unknown status") == 0);
    CHECK(strcmp(qos_strerror(1), "unknown status") == 0);
    CHECK(strcmp(qos_strerror(INT32_MAX), "unknown status") == 0);
    CHECK(strcmp(qos_strerror(INT32_MIN), "unknown status") == 0);
    {
        char version[40];
        snprintf(version, sizeof version, "%d.%d.%d", QOS_VERSION_MAJOR, QOS_VERSION_MINOR, QOS_VERSION_PATCH);
        CHECK(strcmp(version, QOS_VERSION_STRING) == 0);
    }
    return check_end();
}
